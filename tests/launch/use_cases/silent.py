"""A report of data that are prepared, which nobody hears."""


class Silent:
    def progress(self, done, total, what): ...

    def warning(self, message): ...
