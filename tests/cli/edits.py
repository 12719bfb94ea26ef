# SPDX-License-Identifier: Apache-2.0
"""Changes of an open file, as functions that make them: for tests of files that cannot be judged."""

from support import put


def attribute(name, value, group="/"):
    def edit(file):
        file[group].attrs[name] = value
    return edit


def remove(name):
    def edit(file):
        del file[name]
    return edit


def element(name, index, value):
    def edit(file):
        values = file[name][()]
        values[index] = value
        put(file, name, values)
    return edit
