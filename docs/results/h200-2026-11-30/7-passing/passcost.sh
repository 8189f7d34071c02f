# jobs of 2 ms at 400/s in turns, nobody else: units a second tell what passing on costs
G="python3 -P -m gpsched.cli.main"; S="--socket /tmp/gs.sock"
python3 -P -m gpsched.cli.main daemon $S --state-dir /tmp/gs.state > $W/daemon2.log 2>&1 & D=$!
sleep 5
for n in 2 4; do
 for i in $(seq $n); do $G run $S --state-dir /tmp/gs.state --class be -- bench/build/gpsched-be --kernel-us 2000 --rate 400 --phase 0.$i --seconds 6 > $W/p$n.$i.txt 2>&1 & done
 wait $(jobs -p | grep -v "^$D$"); tail -qn1 $W/p$n.*.txt
done
$G run $S --state-dir /tmp/gs.state --class be -- bench/build/gpsched-be --kernel-us 2000 --rate 400 --seconds 4 | tail -1
kill $D; wait $D
