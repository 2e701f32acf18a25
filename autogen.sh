#!/bin/sh
# Makes configure and Makefile.in from a checkout; a release has them already.
cd "$(dirname "$0")" && exec autoreconf --install "$@"
