"""How does a photo become a sample? Scaled, cropped, perhaps mirrored, normalised."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset
from torchvision import transforms

from launch.errors import UseCaseError
from launch.photos.decode import read_photo
from launch.photos.index import read_index

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


class PhotoDataset(Dataset[tuple[Tensor, int]]):
    """Photos as tensors of shape 3 x 224 x 224, each with the number of its class.

    Opens no photo before it is asked for it.

    Attributes:
        folder: Where the photos are.
        classes: Names of the classes, by number.
        photos: Relative name and class of each sample.

    Raises:
        UseCaseError: The folder was not prepared.
    """

    def __init__(self, folder: Path, *, train: bool) -> None:
        split = read_index(folder)
        self.folder = folder
        self.classes = split.classes
        self.photos = split.train if train else split.validation
        # Names are joined to paths here and now, as text: a Path costs 10 us per sample.
        self._files = [f"{folder.absolute()}/{name}" for name, _ in self.photos]
        mirror = [transforms.RandomHorizontalFlip()] if train else []
        self._transform = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                *mirror,
                transforms.ToTensor(),
                transforms.Normalize(MEAN, DEVIATION),
            ]
        )

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        try:
            photo = read_photo(self._files[index])
        except (OSError, SyntaxError, ValueError) as error:
            raise UseCaseError(
                f"photo {self._files[index]} could be read before and cannot now ({error}): "
                "put it back, or start again to leave it out"
            ) from error
        return self._transform(photo), self.photos[index][1]
