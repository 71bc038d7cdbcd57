"""The test vectors for devices in other languages, and the programs that write them."""
