"""The machine as the rules see it: files below a root, so that any machine can be told as a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from gpsched.adaptive import paths


_CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23, "CAP_PERFMON": 38, "CAP_BPF": 39}
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/cuda/compat", "usr/lib/wsl/lib")


class Host:
    """Reads this machine. ``root`` is "/" but in tests; ``state_dir`` is where the daemon keeps original values."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        state_dir: Path | None = None,
        config: Path = paths.CONFIG,
        config_dir: Path = paths.CONFIG_DIR,
    ) -> None:
        self.root = root
        self.state_dir = state_dir or paths.state_dir()
        self.config, self.config_dir = config, config_dir
        self._commands: dict[str, list[int]] | None = None

    @property
    def real(self) -> bool:
        """Whether it is the running machine, so that system calls may be tried."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """The file ``name`` (absolute) below the root."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """The file's content, empty when it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return ""

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return self.path(name).exists()

    def glob(self, pattern: str) -> list[Path]:
        """Files that match, in order."""
        return sorted(self.root.glob(pattern.lstrip("/")))

    def has_capability(self, name: str) -> bool:
        """Whether this process has the capability (proc(5), CapEff)."""
        lines = self.text("/proc/self/status").splitlines()
        mask = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
        return bool(mask >> _CAPABILITIES[name] & 1)

    def processes(self, name: str) -> list[int]:
        """The pids of the processes with this command name (at most 15 characters, as the kernel keeps it)."""
        if self._commands is None:
            self._commands = {}
            for pid, command in self._all_commands():
                self._commands.setdefault(command, []).append(pid)
        return self._commands.get(name[:15], [])

    def _all_commands(self) -> Iterator[tuple[int, str]]:
        for folder in self.glob("/proc/[0-9]*"):
            yield int(folder.name), self.text(f"/proc/{folder.name}/comm").strip()

    def libcuda_files(self) -> list[str]:
        """The driver libraries in the usual folders, and those that processes, also in containers, have mapped."""
        found = [f"/{folder}/libcuda.so.1" for folder in _LIBRARY_FOLDERS if self.exists(f"{folder}/libcuda.so.1")]
        for maps in self.glob("/proc/[0-9]*/maps"):
            text = self.text(str(maps.relative_to(self.root)))
            found += [line.split()[-1] for line in text.splitlines() if os.path.basename(line).startswith("libcuda.so")]  # noqa: PTH119 - a line of text
        return list(dict.fromkeys(found))
