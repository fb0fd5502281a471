"""The fence around a group (Linux only): what a forked child gives up before it loads a submission.

Layers, each used where the machine allows it and reported by name:

    limits      rlimits: address space, file size, open files, processes (with a uid of its own), no core
    uid         a user and group of the run's own, no supplementary groups
    landlock    files: reads of Python, its libraries and the submission, writes to the group's own folder, nothing else;
                no TCP; no signals or abstract sockets to the outside (as far as the kernel's version goes)
    seccomp     no sockets but the wire, no ptrace, no execve, no namespaces, mounts, keys, BPF, io_uring, foreign signals
    net, ipc    namespaces of the worker: no network but an empty one, no shared memory of others

Order: namespaces (the worker, once); then limits, Landlock, uid, no_new_privs, seccomp in every child. A layer that cannot be
had is left out and not reported; whether what remains is enough is the judge's to decide.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import struct
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE, _PR_SET_PDEATHSIG = 38, 4, 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_NEWUSER, _NEWNET, _NEWIPC = 0x10000000, 0x40000000, 0x08000000

# Landlock's rights, by the ABI that brought them.
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_READ = 1 << 2 | 1 << 3  # files, folders
_EXECUTE = 1 << 0
_ALL_FS = (1 << 13) - 1

# What honest code never does: the process ends, and staff are told.
_FATAL = ("ptrace", "process_vm_readv", "process_vm_writev")
# What a library may try and do without: refused with EPERM.
_REFUSED = (
    "execve execveat connect bind listen pidfd_open pidfd_send_signal pidfd_getfd io_uring_setup io_uring_enter io_uring_register "
    "unshare setns mount umount2 pivot_root move_mount open_tree fsopen fsmount fspick mount_setattr chroot bpf userfaultfd keyctl "
    "add_key request_key perf_event_open init_module finit_module delete_module kexec_load kexec_file_load swapon swapoff reboot "
    "acct quotactl name_to_handle_at open_by_handle_at settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname "
    "lookup_dcookie vhangup nfsservctl kcmp syslog fanotify_init process_madvise"
).split()


def isolate_worker() -> list[str]:
    """Puts this process, before it forks any group, into network and IPC namespaces of its own. Gives the layers it got."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEWNET | _NEWIPC) == 0:
        return ["net", "ipc"]
    if _LIBC.unshare(_NEWUSER | _NEWNET | _NEWIPC) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        return ["net", "ipc"]
    return []


def raise_fence(plan: dict[str, Any]) -> list[str]:
    """Puts every layer around this process that it can have, and gives their names.

    plan: "read" and "write" are lists of paths, "uid" a number or None, "processes", "file_bytes", "memory" are limits.
    """
    layers = ["limits"] if _limit(plan) else []
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _landlock(plan["read"], plan["write"]):
        layers.append("landlock")
    if plan["uid"] is not None and _become(plan["uid"]):
        layers.append("uid")
    if _seccomp():
        layers.append("seccomp")
    return layers


def _limit(plan: dict[str, Any]) -> bool:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: plan["file_bytes"],
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if plan["uid"] is not None:  # it counts every process of a uid: only fair where the uid is the run's own
        wanted[resource.RLIMIT_NPROC] = plan["processes"]
    if plan["memory"]:
        wanted[resource.RLIMIT_AS] = _address_space() + plan["memory"]
    try:
        for what, value in wanted.items():
            hard = resource.getrlimit(what)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (value, value))
    except (OSError, ValueError):
        return False
    return True


def _address_space() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _become(uid: int) -> bool:
    """Another user and group, of no group else, for good."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except (PermissionError, OSError):
        return False
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc entries belong to root
    return os.getresuid() == (uid, uid, uid)


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, 1)))


def _landlock(read: list[str], write: list[str]) -> bool:
    abi = landlock_abi()
    if abi < 1:
        return False
    handled = (1 << max(bits for version, bits in _FS_RIGHTS.items() if version <= abi)) - 1
    attributes = struct.pack("QQQ", handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _LIBC.syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return False
    try:
        for path in read:
            _allow(ruleset, path, (_READ | _EXECUTE) & handled)
        for path in write:
            _allow(ruleset, path, handled & ~_EXECUTE)
        return bool(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= ~(1 << 3) & (_EXECUTE | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15)  # rights that a file can have
        _LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("<Qi", rights, target), 0)
    finally:
        os.close(target)


def _seccomp() -> bool:
    try:
        import pyseccomp as seccomp
    except (ImportError, OSError, RuntimeError):
        return False
    own = os.getpid()
    refuse = seccomp.ERRNO(errno.EPERM)
    rules: list[tuple[Any, str, tuple[Any, ...]]] = [(seccomp.KILL_PROCESS, name, ()) for name in _FATAL]
    rules += [(refuse, name, ()) for name in _REFUSED]
    rules.append((refuse, "socket", (seccomp.Arg(0, seccomp.NE, 1),)))  # AF_UNIX = 1; connect is refused anyway
    rules.append((seccomp.ERRNO(errno.ENOSYS), "clone3", ()))  # its flags are out of reach of a filter; libc falls back to clone
    for flag in (_NEWUSER, _NEWNET, _NEWIPC, 0x00020000, 0x20000000, 0x04000000, 0x02000000):
        rules.append((refuse, "clone", (seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag),)))
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        rules.append((refuse, name, (seccomp.Arg(0, seccomp.NE, own),)))
    rules.append((refuse, "tkill", ()))
    try:
        filter_ = seccomp.SyscallFilter(seccomp.ALLOW)
        for action, name, arguments in rules:
            with contextlib.suppress(ValueError, RuntimeError):  # a call that this architecture does not have
                filter_.add_rule(action, name, *arguments)
        filter_.load()
    except (OSError, RuntimeError, ValueError):
        return False
    return True
