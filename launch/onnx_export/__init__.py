"""ONNX files: a trained model on the inputs that its use case gives it, compared with PyTorch."""
