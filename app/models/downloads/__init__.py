"""Downloads that survive everything: queue, partial files, verification, installation."""
