"""Names of a package that are imported when they are first looked at."""

import importlib


def lazy(namespace, modules):
    """(__all__, __getattr__, __dir__) of a package.

    namespace: the package's globals().
    modules: for each module of the package the names that the package takes
        from it; a module whose name has no underscore in front is such a name
        itself.
    """
    package = namespace["__name__"]
    home = {name: module for module, names in modules.items()
            for name in names}
    submodules = [name for name in modules if not name.startswith("_")]

    def find(name):
        if name in home:
            module = importlib.import_module(f"{package}.{home[name]}")
            namespace[name] = getattr(module, name)
        elif name in submodules:
            namespace[name] = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}")
        return namespace[name]

    def names():
        return sorted({*namespace, *home, *submodules})

    return sorted(home), find, names
