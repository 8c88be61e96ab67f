"""Recorded answers of NVML, for machines without a GPU."""


class NvmlError(Exception):
    pass


class RecordedNvml:
    """Answers of NVML, recorded: name of a function -> its answer for each GPU.

    A function without a record is not supported, as on an old GPU. An exception is raised.
    """

    def __init__(self, count=1, *, pairs=None, **answers):
        self.count = count
        self.pairs = pairs or {}
        self.answers = answers
        self.is_open = False

    def nvmlInit(self):  # noqa: N802
        self.is_open = True

    def nvmlShutdown(self):  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self._give("HandleByIndex", index, default=index)

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        short = name.removeprefix("nvmlDeviceGet").removeprefix("nvmlSystemGet")

        def call(*arguments):
            if short in self.pairs:
                return self.pairs[short][arguments[:2]]
            if short == "DriverVersion":
                return "550.54.15"
            return self._give(short, *arguments)

        return call

    def _give(self, short, index, *rest, default=None):
        answer = self.answers.get(short, {}).get(index, default)
        if answer is None:
            raise NvmlError("Not Supported")
        if isinstance(answer, Exception):
            raise answer
        return answer[rest[0]] if rest else answer
