"""A real Slurm in a temporary directory: munged, MariaDB, slurmdbd, slurmctld and many virtual nodes, all on
loopback."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


CLUSTER = "gpsched"
PROGRAMS = ("slurmctld", "slurmdbd", "slurmd", "sacctmgr", "mariadbd", "mariadb-install-db", "munged")
BUSY = 4  # how much longer than on a quiet machine anything may take
LOCK = Path("/tmp/gpsched-slurm-tests.lock")  # the ports are fixed: one stack at a time on a machine
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")  # slurmdbd's link ignores any other

SLURM_CONF = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
CommunicationParameters=NoInAddrAny
StateSaveLocation={lab}/state
SlurmdSpoolDir={lab}/spool/%n
SlurmctldPidFile={lab}/run/slurmctld.pid
SlurmdPidFile={lab}/run/slurmd-%n.pid
SlurmctldLogFile={lab}/log/slurmctld.log
SlurmdLogFile={lab}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
{accounting}
PriorityType=priority/multifactor
PriorityWeightQOS=100000
PriorityWeightAge=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=1,preempt_youngest_first
KillWait=2
MinJobAge=300
NodeName=DEFAULT CPUs=32 RealMemory=4000 Gres=gpu:8 State=UNKNOWN
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-{last_port}]
PartitionName=gpu Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos"""
DBD_CONF = """AuthType=auth/munge
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=13306
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
LogFile={lab}/log/slurmdbd.log
PidFile={lab}/run/slurmdbd.pid
"""


def missing() -> list[str]:
    """What this machine lacks to run the stack."""
    lacking = [
        name for name in PROGRAMS if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    ]
    return lacking + ([] if os.geteuid() == 0 else ["root"])


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll until true; AssertionError naming ``what``. ``seconds`` is for a quiet machine, a busy one gets more."""
    end = time.monotonic() + BUSY * seconds
    while not condition():
        assert time.monotonic() < end, f"not within {BUSY * seconds:.0f} s: {what}"
        time.sleep(0.2)


class SlurmStack:
    """Start with `start`, stop with `stop`; every process it starts is ended by process id."""

    def __init__(self, lab: Path, nodes: int = 32, accounting: bool = True, changes: str = "") -> None:
        """``changes``: lines for slurm.conf; of a key that is given twice the last one counts."""
        self.lab, self.nodes, self.accounting, self.changes = lab, nodes, accounting, changes
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.lock: BinaryIO | None = None
        self.env = os.environ | {
            "SLURM_CONF": str(lab / "slurm.conf"),
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin",
            "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S",
        }

    def start(self) -> None:
        self.lock = open(LOCK, "wb")  # noqa: SIM115 - held until `stop`
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self._write_files()
        if not MUNGE_SOCKET.exists():
            MUNGE_SOCKET.parent.mkdir(exist_ok=True)
            shutil.chown(MUNGE_SOCKET.parent, "munge", "munge")
            self._spawn("munged", ["runuser", "-u", "munge", "--", "munged", "--foreground"])
            wait_until(MUNGE_SOCKET.exists, 10, "munge socket")
        if self.accounting:
            self._start_database()
            self.start_dbd()
            wait_until(
                lambda: self.try_command("sacctmgr", "-n", "list", "cluster") is not None, 30, "slurmdbd answers"
            )
            self.command("sacctmgr", "-i", "add", "cluster", CLUSTER)
        self.start_ctld()
        for index in range(1, self.nodes + 1):
            self._spawn(f"slurmd-n{index}", ["slurmd", "-D", "-N", f"n{index}"])
        wait_until(lambda: self.idle_nodes() == self.nodes, 60, "all nodes idle")

    def idle_nodes(self) -> int:
        lines = (self.try_command("sinfo", "-h", "-N", "-o", "%t") or "").split()
        return lines.count("idle")

    def _write_files(self) -> None:
        for name in ("state", "spool", "run", "log", "dev", "db", "jobs"):
            (self.lab / name).mkdir()
        self.lab.chmod(0o755)
        host = socket.gethostname().split(".")[0]
        text = SLURM_CONF.format(
            cluster=CLUSTER,
            host=host,
            lab=self.lab,
            nodes=self.nodes,
            last_port=17000 + self.nodes,
            accounting=ACCOUNTING if self.accounting else "AccountingStorageType=accounting_storage/none",
        )
        (self.lab / "slurm.conf").write_text(text + self.changes)
        (self.lab / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName=n[1-{self.nodes}] Name=gpu File={self.lab}/dev/gpu[0-7]\n"
        )
        for index in range(8):  # regular files are refused
            os.mknod(self.lab / "dev" / f"gpu{index}", 0o666 | 0o020000, os.makedev(1, 3))
        (self.lab / "slurmdbd.conf").write_text(DBD_CONF.format(lab=self.lab))
        (self.lab / "slurmdbd.conf").chmod(0o600)
        (self.lab / "job.sh").write_text("#!/bin/sh\nexec sleep ${1:-100000}\n")

    def _start_database(self) -> None:
        data = self.lab / "db"
        shutil.chown(data, "mysql", "mysql")
        install = ["mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--skip-test-db"]
        subprocess.run(install, env=self.env, check=True, capture_output=True)
        self.start_mariadb()
        sql = "CREATE DATABASE slurm_acct; CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';"
        sql += "CREATE USER slurm@localhost IDENTIFIED BY 'slurm';"
        sql += "GRANT ALL ON slurm_acct.* TO slurm@'127.0.0.1'; GRANT ALL ON slurm_acct.* TO slurm@localhost;"
        subprocess.run(["mariadb", "--no-defaults", "-S", str(data / "s.sock"), "-e", sql], env=self.env, check=True)

    def start_mariadb(self) -> None:
        data = self.lab / "db"
        options = [f"--datadir={data}", f"--socket={data}/s.sock", "--port=13306", "--bind-address=127.0.0.1"]
        self._spawn("mariadbd", ["mariadbd", "--no-defaults", "--user=mysql", *options])
        ping = ["mariadb", "--no-defaults", "-S", str(data / "s.sock"), "-e", "SELECT 1"]
        wait_until(
            lambda: subprocess.run(ping, env=self.env, capture_output=True).returncode == 0, 30, "MariaDB answers"
        )

    def start_dbd(self) -> None:
        # slurmdbd reads its file beside slurm.conf
        self._spawn("slurmdbd", ["slurmdbd", "-D"])

    def start_ctld(self) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D"])
        wait_until(lambda: "UP" in (self.try_command("scontrol", "ping") or ""), 30, "slurmctld answers")

    def _spawn(self, name: str, command: list[str]) -> None:
        with open(self.lab / "log" / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one of the processes and wait for it."""
        process = self.processes.pop(name)
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        self.try_command("scancel", "-u", "root")
        self.try_command("scancel", "--state=PENDING", "-u", "root")
        time.sleep(1.0)
        for name in sorted(
            self.processes, key=lambda name: ["slurmd-", "slurmct", "slurmdb", "mariadb", "munged"].index(name[:7])
        ):
            self.end(name)
        if self.lock:
            self.lock.close()

    def command(self, *words: str) -> str:
        """Run a Slurm command; its output. Fails the test when it fails."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    def try_command(self, *words: str) -> str | None:
        """The output, or None when the command fails."""
        try:
            done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def submit(self, qos: str, gpus: int = 8, nodes: int = 1, *options: str, seconds: int = 100000) -> int:
        """Submit a job; its number."""
        words = [
            "sbatch",
            "--parsable",
            "-A",
            "org1",
            "-q",
            qos,
            f"--gres=gpu:{gpus}",
            f"-N{nodes}",
            f"-n{nodes}",
            "--requeue",
        ]
        words += ["-o", "/dev/null", "-D", str(self.lab / "jobs"), *options, str(self.lab / "job.sh"), str(seconds)]
        return int(self.command(*words).strip())

    def states(self, *jobs: int) -> list[str]:
        """State of each job."""
        return [self.command("squeue", "-h", "-j", str(job), "-o", "%T").strip() for job in jobs]
