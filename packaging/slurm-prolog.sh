#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf: Prolog=/usr/share/gpsched/slurm-prolog.sh and Epilog= the same file.
# Writes the job's QOS and account where gpsched looks first (rules with slurm_qos), so that users cannot claim others.
set -eu
folder=/run/gpsched/slurm
job=${SLURM_JOB_ID:?only Slurm runs this}
case ${SLURM_SCRIPT_CONTEXT:-prolog_slurmd} in
epilog*) rm -f "$folder/$job" ;;
*)
	mkdir -p "$folder"
	shown=$([ -n "${SLURM_JOB_QOS-}" ] && [ -n "${SLURM_JOB_ACCOUNT-}" ] || scontrol show job "$job")
	qos=${SLURM_JOB_QOS:-$(printf '%s\n' "$shown" | sed -n 's/.*QOS=\([^ ]*\).*/\1/p')}
	account=${SLURM_JOB_ACCOUNT:-$(printf '%s\n' "$shown" | sed -n 's/.*Account=\([^ ]*\).*/\1/p')}
	printf '%s\n' "$qos" "$account" >"$folder/$job"
	;;
esac
