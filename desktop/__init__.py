"""The window: everything that knows Qt, and beside it, Qt-free, what is kept between two starts."""
