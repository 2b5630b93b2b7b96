#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
#
# What the writer makes is what Perfetto's own engine reads: each timeline case and a few random
# streams are loaded into the real trace processor. It exits 0 even where it dropped events, so its
# table of statistics is asked, also for what it calls mere information, and its counts are compared
# with the writer's own (a truncated or too deep trace leaves no statistic).
#
# TRACERD_TP is the command: COMMAND TRACE SQL... prints each result as a table. Where it is not
# set, ../shared/tools/tp-query beside the source tree is taken; else there is nothing to test with.
. "$(dirname "$0")/lib/lib.sh"

tp=${TRACERD_TP:-$TRACERD_SRC/../shared/tools/tp-query}
[ -x "$tp" ] || command -v "$tp" >/dev/null || skip "no trace processor (TRACERD_TP)"
gen=$TRACERD_BUILD/tests/unit/decode/timeline/timeline-gen
[ -x "$gen" ] || skip "tests/unit/decode/timeline/timeline-gen is not built"
"$tp" /dev/null >"$TMP/probe" 2>&1 || skip "the trace processor does not run here: $(tail -n 1 "$TMP/probe")"

trouble="select name, value from stats where value > 0 and (severity in ('error', 'data_loss')
	or name glob '*skipped*' or name glob '*invalid*' or name glob '*error*' or name glob '*missing*'
	or name glob '*drop*' or name glob '*depth_exceeded*' or name glob '*overlapping*' or name glob '*mismatch*')"

# The row before each "(N rows": answers of one row, without their blanks.
rows() { awk '/^\([0-9]+ rows/ { print before } { before = $0 }' "$1" | tr -d ' '; }

numbers="select count(*) || '/' || coalesce(sum(s.dur < 0), 0) || '/' || coalesce(max(s.depth) < 512, 1) || '/' ||
	(select count(*) from flow where slice_out is null or slice_in is null) || '/' ||
	(select count(*) from counter) || '/' || (select count(*) from sched_slice) || '/' ||
	(select count(*) from slice where name is null) as n from slice s"

# check NAME: $TMP/t.pftrace against the writer's counts in $TMP/counts
check() {
	local name=$1 slices instants flows switches counters got want
	eval "$(tr ' ' '\n' <"$TMP/counts")"
	if ! "$tp" "$TMP/t.pftrace" "$trouble" "$numbers" >"$TMP/out" 2>"$TMP/err" ||
		! grep -q '^(0 rows' "$TMP/out"; then
		fail "$name: import: $(grep -h . "$TMP/err" "$TMP/out" | head -5 | tr '\n' ' ')"
	fi
	got=$(rows "$TMP/out" | tail -n 1)
	want=$((slices + instants))/0/1/0/$counters/$switches/0
	[ "$got" = "$want" ] || fail "$name: slices/open/shallow/half flows/counters/switches/nameless are $got, not $want"
	ok "$name: $got"
}

for case in "$TRACERD_SRC"/tests/golden/timeline/*.case; do
	"$gen" pftrace "$case" >"$TMP/t.pftrace" 2>"$TMP/counts" || fail "$case: $(cat "$TMP/counts")"
	check "$(basename "$case")"
done
for seed in 1 2 3; do
	"$gen" pftrace random $seed 5000 >"$TMP/t.pftrace" 2>"$TMP/counts" || fail "random $seed: $(cat "$TMP/counts")"
	check "random $seed"
done

# The viewer's own tables, for the case of a lock: who waited, who woke it, who ran.
"$gen" pftrace "$TRACERD_SRC/tests/golden/timeline/lock.case" >"$TMP/t.pftrace" 2>/dev/null
names=() questions=() wanted=()
expect() { names+=("$1") questions+=("$2") wanted+=("$3"); }
expect "thread_state has the sleep and its waker" \
	"select group_concat(s.ts || '+' || s.dur || s.state || coalesce('<' || w.name, ''), ' ') from
	 (select * from thread_state order by ts) s join thread t using (utid) left join thread w on w.utid = s.waker_utid
	 where t.tid = 100 and s.ts < 35000" "10000+2000Running12000+18000S30000+100R<holder30100+4900Running"
expect "a preempted thread is R+" \
	"select state from thread_state join thread using (utid) where tid = 101 and ts = 31500" "R+"
expect "sched_slice has the idle task in between" \
	"select dur from sched_slice join thread using (utid) where cpu = 0 and tid = 0" "18100"
expect "the flow leads from the waker to the woken" \
	"select o.name || '>' || i.name from flow join slice o on o.id = slice_out join slice i on i.id = slice_in" "wakesmain>woken"
expect "the wait's slice says who ended it" \
	"select string_value from slice join args using (arg_set_id) where name = 'off CPU: sleeping' and key = 'debug.woken by'" "holder"
expect "threads belong to their process" \
	"select group_concat(thread.name) from thread join process using (upid) where process.name = 'demo'" "main,holder"
expect "times are on MONOTONIC" "select min(ts) from slice" "10000"
# All at one load of the engine, which takes it a second or two.
"$tp" "$TMP/t.pftrace" "${questions[@]}" >"$TMP/out" 2>"$TMP/err" || fail "the lock: $(cat "$TMP/err")"
rows "$TMP/out" >"$TMP/rows"
mapfile -t got <"$TMP/rows"
for i in "${!names[@]}"; do
	[ "${got[i]:-}" = "${wanted[i]}" ] || fail "${names[i]}: ${got[i]:-nothing}, not ${wanted[i]}"
	ok "${names[i]}"
done
