"""The gymnasium environments of this package by name, registered without importing anything heavy.

Gymnasium takes a third of a second to import, so `import portfolio_sdpo` must not import it. If it is there already,
the environments are registered at once, otherwise as soon as somebody imports it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own would cost its import; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

RANDOM_CMDP = "portfolio_sdpo/RandomCmdp-v0"
"""Name under which gymnasium makes a random CMDP; settings: states, actions, seed, noise_scale, horizon, costs."""

PORTFOLIO = "portfolio_sdpo/Portfolio-v0"
"""Name under which gymnasium makes a portfolio; settings: those of `envs.portfolio.make_portfolio_env`."""

SAFETY = "portfolio_sdpo/Safety-v0"
"""Name under which gymnasium makes a task of Safety Gym; settings: those of `envs.safety.SafetyEnv`."""

ENTRY_POINTS = {
    RANDOM_CMDP: (
        "portfolio_sdpo.envs.random_cmdp:make_random_cmdp_env",
        "portfolio_sdpo.envs.random_cmdp:make_random_cmdp_vector_env",
    ),
    PORTFOLIO: (
        "portfolio_sdpo.envs.portfolio:make_portfolio_env",
        "portfolio_sdpo.envs.portfolio:make_portfolio_vector_env",
    ),
    SAFETY: (
        "portfolio_sdpo.envs.safety:SafetyEnv",
        "portfolio_sdpo.envs.safety:SafetyVectorEnv",
    ),
}
"""Name → scalar and vector environment as text, so that each is imported by those who make it."""


def register_environments() -> None:
    """Register every environment that gymnasium does not know yet; imports gymnasium."""
    import gymnasium

    for name, (scalar, vector) in ENTRY_POINTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=scalar, vector_entry_point=vector)


def register_with_gymnasium() -> None:
    """Register the environments now if gymnasium is imported already, otherwise when it is."""
    if hasattr(sys.modules.get("gymnasium"), "register"):
        register_environments()
    elif not any(isinstance(finder, _GymnasiumWatcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumWatcher())


class _GymnasiumWatcher:
    """A finder that finds nothing itself, and has the environments registered once gymnasium has been imported."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, and for gymnasium with the registration after its import."""
        if fullname != "gymnasium" or self._searching:
            return None
        from importlib.util import find_spec

        self._searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return spec
        import_module = spec.loader.exec_module

        def import_and_register(module: ModuleType) -> None:
            import_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            register_environments()

        # On the loader's instance, whose type stays what gymnasium and others expect.
        spec.loader.exec_module = import_and_register  # type: ignore[method-assign]
        return spec
