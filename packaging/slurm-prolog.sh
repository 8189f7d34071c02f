#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf: Prolog=/usr/share/gpsched/slurm-prolog.sh and Epilog= the same file.
# Writes the job's QOS where gpsched looks first (rules with slurm_qos), so that users cannot claim another.
set -eu
folder=/run/gpsched/slurm
job=${SLURM_JOB_ID:?only Slurm runs this}
case ${SLURM_SCRIPT_CONTEXT:-prolog_slurmd} in
epilog*) rm -f "$folder/$job" ;;
*)
	mkdir -p "$folder"
	qos=${SLURM_JOB_QOS:-$(scontrol show job "$job" | sed -n 's/.*QOS=\([^ ]*\).*/\1/p')}
	printf '%s\n' "$qos" >"$folder/$job"
	;;
esac
