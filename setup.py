"""
Here for the tools that still look for it; everything is in setup.cfg.
"""

from setuptools import setup

setup()
