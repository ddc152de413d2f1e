"""Exceptions: only for what keeps a run from going on. A candidate's failure is a value, see `candidate`."""


class MlsearchError(Exception):
    """Base of all errors that a person is meant to read: one line, what, with which value, what to do next."""


class PayloadError(MlsearchError):
    """The payload can't be read, or the compiler doesn't accept it."""


class TargetError(MlsearchError):
    """The target is unknown, or can't be compiled for or run here."""


class NoDeviceError(TargetError):
    """This machine has no device of that kind."""


class TargetMismatchError(TargetError):
    """The device that measures is of another architecture than the one that was compiled for."""


class TaskError(MlsearchError):
    """A task can't be tuned: it does not compile or run untuned."""


class TemplateError(MlsearchError):
    """A template breaks the rules of the template format."""


class KnobError(MlsearchError):
    """A knob's value is outside of its domain, or an assignment names an unknown knob."""


class SpecError(MlsearchError):
    """A spec can't be read, or doesn't do what it promises."""


class ToolchainError(MlsearchError):
    """A compiler call failed where it must not, e.g. for the untuned payload."""


class StoreError(MlsearchError):
    """The record store can't be read or written."""


class NoSpaceError(MlsearchError):
    """A disk is full. Whatever fails from there on says nothing of what was tried."""


class RunnerError(MlsearchError):
    """Nothing can be measured here, e.g. the untuned build does not run."""


class BundleError(MlsearchError):
    """A bundle, or a file of what was measured from one, is damaged or isn't what was expected."""
