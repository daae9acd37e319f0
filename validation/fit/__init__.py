"""Constants fitted to half of the measurements, and files of them."""
