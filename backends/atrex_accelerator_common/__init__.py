"""What the accelerators of two vendors' GPUs have in common. A library, not a plugin.

Nothing here knows a vendor: a driver, its words and its files are handed in. Importing this package
imports neither torch nor a driver.
"""
