#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is an administrator: root, the daemon's own user, members of the socket's group (by their
primary or any other group, at the moment they connect). What is for administrators is refused to
others, and each privileged action leaves a line that names who did it - and no more than that."""
import grp

from lib import *

need_root("to become several users")
GROUP = grp.getgrgid(60) if any(g.gr_gid == 60 for g in grp.getgrall()) else grp.getgrall()[-1]
USER, GROUP_ID = 64999, GROUP.gr_gid


def as_user_with(gid, groups, body):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(USER, USER, USER)
            body()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_role(d, role):
    def body():
        with d.client() as c:
            hello = c.call("hello")
            if hello["role"] != role or hello["uid"] != USER:
                raise AssertionError(hello)
            try:
                c.call("config.show")
                if role != "admin":
                    raise AssertionError("config.show was answered")
            except Error as e:
                if role == "admin" or e.code != "not_permitted":
                    raise
    return body


def roles(d):
    expect(as_user_with(64998, [], is_role(d, "user")) == 0, "another user is a user")
    expect(as_user_with(64998, [64997, 64996], is_role(d, "user")) == 0, "with other groups too")
    expect(as_user_with(64998, [64997, GROUP_ID, 64996], is_role(d, "admin")) == 0, "a member of the group is an administrator")
    expect(as_user_with(GROUP_ID, [], is_role(d, "admin")) == 0, "also where it is the primary group")
    with d.client() as c:
        keys = {k["key"]: k for k in c.call("config.show")["config"]}
        expect(keys["socket_group"]["value"] == GROUP.gr_name and keys["sample_hz"]["default"] == "999", "root sees the configuration")
    st = d.sock.stat()
    expect(st.st_gid == GROUP_ID and st.st_mode & 0o777 == 0o666, "control.sock belongs to the group")
    st = d.status_sock.stat()
    expect(st.st_gid == GROUP_ID and st.st_mode & 0o777 == 0o660, "status.sock is for the group only")

    def poll():
        http_get(d.status_sock, "/status")
    expect(as_user_with(64998, [GROUP_ID], poll) == 0, "a member reads it")

    def refused():
        try:
            poll()
        except PermissionError:
            return
        raise AssertionError("status.sock was open")
    expect(as_user_with(64998, [], refused) == 0, "others do not")


def audit(d):
    def body():
        with d.client() as c:
            for _ in range(3000):
                c.call_error("snapshot.delete", {"snapshot": "x outcome=ok\u202e"})
    if as_user_with(64998, [], body) != 0:
        fail("requests")
    with d.client() as c:
        c.call_error("target.disarm", {"target": "t77"})
        c.call_error("snapshot.create", {"target": 12, "reason": "very secret"})
    lines = [line for line in d.log().splitlines() if "audit:" in line]
    mine = [line for line in lines if f"uid={USER} " in line]
    expect(50 <= len(mine) < 300, f"{len(mine)} lines of 3000 actions")
    for line in mine:
        if line.count("outcome=") != 1 and "dropped" not in line:
            fail(f"a name looks like a field: {line}")
    root = [line for line in lines if "uid=0 " in line]
    expect(any("method=target.disarm object=t77 outcome=not_found" in line for line in root), "who, what, on what, how it ended")
    expect("very secret" not in d.log(), "no text of a client is in the log")


with Tracerd(config=f"[daemon]\nsocket_group = {GROUP.gr_name}\n") as d:
    roles(d)
    audit(d)
