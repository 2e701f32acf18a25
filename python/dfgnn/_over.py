"""Classes over those of other libraries, of which one is made when dfgnn first
meets a class: copies and pickles name the library's class."""


class Over:
    """The first base of a class over another, of which no __init_subclass__ is
    told: it may keep a list of the classes that users define, or refuse one."""

    def __init_subclass__(cls, **kwargs):
        if "_dfgnn_over" not in vars(cls):
            super().__init_subclass__(**kwargs)


def bases(kind):
    return (kind,) if issubclass(kind, Over) else (Over, kind)


def over(maker, kind):
    """The attributes that a class over kind begins with; maker(kind) gives the
    same class in another process."""
    return {"__module__": kind.__module__, "__doc__": kind.__doc__,
            "__qualname__": kind.__qualname__, "__reduce_ex__": _reduced,
            "_dfgnn_over": (maker, kind)}


def own(kind, maker):
    """The class over which a maker made this one, or None."""
    made_by, found = vars(kind).get("_dfgnn_over", (None, None))
    return found if made_by is maker else None


def _reduced(self, protocol):
    made = object.__reduce_ex__(self, max(protocol, 2))
    found = vars(type(self)).get("_dfgnn_over")  # subclasses have names
    return made if found is None else (_restored, found, *made[2:])


def _restored(maker, kind):
    return object.__new__(maker(kind))
