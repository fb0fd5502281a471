"""The fence around a group (Linux only): what a forked child gives up before it loads a submission.

Layers, each used where the machine allows it and reported by name:

    net, ipc    namespaces of the worker: no network but an empty one, no shared memory of others
    folder      a mount namespace of the group's own: its folder is a small file system in memory, gone with its last process
    limits      rlimits: address space, CPU, file size, open files, processes, no core
    landlock    files: reads of Python, its libraries and the submission, writes to the group's own folder, nothing else;
                no TCP; no signals or abstract sockets to the outside (as far as the kernel's version goes)
    uid         a user and group of the group's own, no supplementary groups, no capabilities
    seccomp     no sockets but the wire, no ptrace, no execve, no namespaces, mounts, keys, BPF, io_uring, foreign signals,
                no shared memory by name, no change of modes, owners or times, no limits or priorities of other processes

Order: namespaces (the worker, once); then folder, limits, Landlock, uid, seccomp in every child. A layer that cannot be had
is left out and not reported; whether what remains is enough is the judge's to decide (`grader.sandbox`).
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import os
import resource
import signal
import struct
import tempfile
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE, _PR_SET_PDEATHSIG, _PR_SET_SECCOMP = 38, 4, 1, 22
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_NEWUSER, _NEWNET, _NEWIPC, _NEWNS = 0x10000000, 0x40000000, 0x08000000, 0x00020000
_NEWPID, _NEWUTS, _NEWCGROUP = 0x20000000, 0x04000000, 0x02000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_NOATIME, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1024, 0x4000, 1 << 18

# Landlock's rights, by the ABI that brought them.
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_EXECUTE, _READ = 1 << 0, 1 << 2 | 1 << 3  # read: files, folders
_OF_A_FILE = _EXECUTE | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # rights that a file, and not only a folder, can have

# What honest code never does: the process ends, and staff are told. (`socket` is refused, so no library comes to `connect`.)
_FATAL = ("ptrace", "process_vm_readv", "process_vm_writev", "connect")
# What a library may try and do without: refused with EPERM.
_REFUSED = (
    "socket execve execveat bind listen accept accept4 pidfd_open pidfd_send_signal pidfd_getfd "
    "io_uring_setup io_uring_enter io_uring_register "
    "unshare setns mount umount umount2 pivot_root move_mount open_tree fsopen fsmount fspick mount_setattr chroot bpf "
    "userfaultfd keyctl add_key request_key perf_event_open init_module finit_module delete_module kexec_load kexec_file_load "
    "swapon swapoff reboot acct quotactl name_to_handle_at open_by_handle_at settimeofday clock_settime clock_adjtime adjtimex "
    "sethostname setdomainname lookup_dcookie vhangup nfsservctl kcmp syslog fanotify_init inotify_init inotify_init1 "
    "process_madvise process_mrelease tkill "
    # memory that outlives its process, or that no limit counts
    "shmget shmat shmctl semget semop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink memfd_create memfd_secret "
    # what Landlock does not cover, on files of the judge's own user
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat truncate "
    # other processes of the judge's own user
    "setpriority ioprio_set"
).split()
# Commands of a call that is needed otherwise: those that have the kernel signal somebody else when a descriptor is ready, and
# those that hold up whoever opens a file.
_COMMANDS = {
    "fcntl": (8, 10, 15, 1024, 1026),  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
    "ioctl": (0x8901, 0x8902),  # FIOSETOWN, SIOCSPGRP
}
_LOW = 2**32 - 1  # commands have 32 bits, whatever stands above them
# The same for another process; for the caller itself (0) they stay.
_ONLY_ON_ITSELF = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
    "migrate_pages",
    "move_pages",
)


def isolate_worker() -> list[str]:
    """Puts this process, before it forks any group, into namespaces of its own. Gives the layers it got.

    As an ordinary user that takes a user namespace first, where the system allows one.
    """
    uid, gid = os.getuid(), os.getgid()
    own = _NEWNET | _NEWIPC | _NEWNS
    if _LIBC.unshare(own) == 0:
        return _mounts(["net", "ipc"])
    if _LIBC.unshare(_NEWUSER | own) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        return _mounts(["net", "ipc"])
    return []


def _mounts(layers: list[str]) -> list[str]:
    """With "folder" where a mount here stays here; what is mounted elsewhere is still seen."""
    private = _LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    return [*layers, "folder"] if private else layers


def own_folder(path: str, bytes_: int, files: int) -> bool:
    """Mounts a file system of this size over an empty folder, for this process and what it forks alone."""
    if _LIBC.unshare(_NEWNS) != 0:
        return False
    options = f"size={bytes_},nr_inodes={files},mode=0700".encode()
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_NOATIME
    return bool(_LIBC.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options) == 0)


def raise_fence(plan: dict[str, Any], parent: int) -> list[str]:
    """Puts every layer around this process that it can have, and gives their names. It ends when `parent` does.

    plan: "read" and "write" are lists of paths, "uid" a number or None, "processes", "open_files", "file_bytes", "memory" (0 for
    none) and "cpu_seconds" are limits.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where the machine's memory ends, the submission goes first
    layers = ["limits"] if _limit(plan) else []
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _landlock(plan["read"], plan["write"]):
        layers.append("landlock")
    if plan["uid"] is not None and _become(plan["uid"]):
        layers.append("uid")
    _drop_capabilities()
    end_with_parent(parent)  # after the change of user, which clears it
    if _seccomp():
        layers.append("seccomp")
    return layers


def end_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends; at once where that has happened."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Takes end_with_parent back."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def _limit(plan: dict[str, Any]) -> bool:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: plan["file_bytes"],
        resource.RLIMIT_NOFILE: plan["open_files"],
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_CPU: plan["cpu_seconds"],
        # It counts all processes of a user: where that is the judge's own, those that are there already are let be.
        resource.RLIMIT_NPROC: plan["processes"] + (_tasks_of(os.getuid()) if plan["uid"] is None else 0),
    }
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


def _tasks_of(uid: int) -> int:
    """How many threads a user has running."""
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def _become(uid: int) -> bool:
    """Another user and group, of no group else, for good."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError:
        return False
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc entries belong to root
    return os.getresuid() == (uid, uid, uid)


def _drop_capabilities() -> None:
    """All of them: those that root keeps where it cannot change its user, and those of a user namespace."""
    header = struct.pack("<Ii", 0x20080522, 0)
    _LIBC.capset(header, struct.pack("<6I", 0, 0, 0, 0, 0, 0))


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
            rights &= _OF_A_FILE
        _LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("<Qi", rights, target), 0)
    finally:
        os.close(target)


class _Program(ctypes.Structure):
    """A filter as the kernel takes it: how many instructions, and where they are."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


_OWN_PID = 0x7EADBE01  # stands in a compiled filter for the process that loads it; no pid is as large
_filters: list[bytes] | None = None


def compile_filters() -> list[bytes]:
    """The filters of every group that this process will fork, compiled once since that takes longer than all the rest.

    Of two filters the stricter answer counts: the second ends a process that signals the worker, init, or everyone.
    """
    global _filters
    if _filters is None:
        try:
            _filters = [_compile(_rules()), _compile(_rules_of_signals(os.getpid()))]
        except (ImportError, OSError, RuntimeError, ValueError):
            _filters = []
    return _filters


def _compile(rules: list[tuple[Any, str, tuple[Any, ...]]]) -> bytes:
    import pyseccomp as seccomp

    filter_ = seccomp.SyscallFilter(seccomp.ALLOW)
    for action, name, arguments in rules:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # a call that this architecture does not have
            filter_.add_rule(action, name, *arguments)
    with tempfile.TemporaryFile() as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def _rules() -> list[tuple[Any, str, tuple[Any, ...]]]:
    import pyseccomp as seccomp

    refuse = seccomp.ERRNO(errno.EPERM)
    arg, unequal, masked = seccomp.Arg, seccomp.NE, seccomp.MASKED_EQ
    rules: list[tuple[Any, str, tuple[Any, ...]]] = [(seccomp.KILL_PROCESS, name, ()) for name in _FATAL]
    rules += [(refuse, name, ()) for name in _REFUSED]
    rules += [(refuse, name, (arg(0, unequal, 0),)) for name in _ONLY_ON_ITSELF]
    # A pair of datagram sockets can send to others by name; a pair of streams cannot.
    rules += [(refuse, "socketpair", (arg(0, unequal, 1),)), (refuse, "socketpair", (arg(1, masked, 0xF, 2),))]
    rules.append(
        (seccomp.ERRNO(errno.ENOSYS), "clone3", ())
    )  # its flags are out of reach of a filter; libc falls back to clone
    for flag in (_NEWUSER, _NEWNET, _NEWIPC, _NEWNS, _NEWPID, _NEWUTS, _NEWCGROUP):
        rules.append((refuse, "clone", (arg(0, masked, flag, flag),)))
    for name, commands in _COMMANDS.items():
        rules += [(refuse, name, (arg(1, masked, _LOW, command),)) for command in commands]
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        rules.append((refuse, name, (arg(0, unequal, _OWN_PID),)))
    return rules


def _rules_of_signals(worker: int) -> list[tuple[Any, str, tuple[Any, ...]]]:
    import pyseccomp as seccomp

    return [
        (seccomp.KILL_PROCESS, "kill", (seccomp.Arg(0, seccomp.MASKED_EQ, _LOW, target),))
        for target in {worker, 1, _LOW}
    ]


def _seccomp() -> bool:
    """Loads the compiled filters, with this process's own number in them."""
    loaded = False
    for code in _filters or []:
        words = array.array("I", code)  # of every instruction the second word is its constant
        for i in range(1, len(words), 2):
            if words[i] == _OWN_PID:
                words[i] = os.getpid()
        program = _Program(len(code) // 8, words.tobytes())
        loaded = _LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) == 0
        if not loaded:
            return False
    return loaded
