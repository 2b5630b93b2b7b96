#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# named
"""The Go module with the versions of Go that it is for: it builds and passes its tests with each, and where there is no FlightRecorder it
says so. Versions come through Go's own mechanism for them, and those that cannot be fetched are left out."""
from lib.golang import *

VERSIONS = {22: "go1.22.12", 23: "go1.23.12", 24: "go1.24.13", 25: "go1.25.8"}
MAIN = """package main

import (
	"fmt"

	tracerd "tracerd/client/go"
)

func main() { fmt.Printf("%q", tracerd.Start(tracerd.Options{Socket: "/nonexistent"}).Status().Missing) }
"""
sources("client/go")
(work / "hello").mkdir()
(work / "hello" / "main.go").write_text(MAIN)
(work / "hello" / "go.mod").write_text("module hello\n\ngo 1.22\n\nrequire tracerd/client/go v0.0.0\n\n"
                                       "replace tracerd/client/go => ../client/go\n")
tried = 0
for minor, toolchain in VERSIONS.items():
    if version(GOTOOLCHAIN=toolchain) != minor:
        print(f"# {toolchain} is not here and cannot be fetched", flush=True)
        continue
    tried += 1
    run("vet", "./...", cwd="client/go", GOTOOLCHAIN=toolchain)
    run("test", "./...", cwd="client/go", GOTOOLCHAIN=toolchain, CGO_ENABLED="0")
    run("build", "-o", tmp() / "hello", ".", cwd="hello", GOTOOLCHAIN=toolchain, CGO_ENABLED="0")
    said = subprocess.run([tmp() / "hello"], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    if minor < 25:
        expect("needs Go 1.25" in said and toolchain in said, f"{toolchain}: it builds, passes its tests, and says what is missing: {said}")
    else:
        expect(said == '""', f"{toolchain}: it builds, passes its tests, and records")
if not tried:
    skip("no other version of Go is here, and none can be fetched")
