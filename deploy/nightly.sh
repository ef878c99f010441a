#!/bin/sh
# Retrain, archive and back up once a day, at NIGHTLY_AT (HH:MM, UTC); what fails is tried again on the next day.
set -u
at=${NIGHTLY_AT:-22:30}
case $at in
    [0-2][0-9]:[0-5][0-9]) ;;
    *) echo "NIGHTLY_AT: must look like 22:30 (got $at)." >&2; exit 1 ;;
esac
backups=${PORTFOLIO_SDPO_HOME:?}/backups
while true; do
    now=$(date -u +%s)
    next=$(date -u -d "today $at" +%s)
    [ "$next" -gt "$now" ] || next=$((next + 86400))
    sleep $((next - now)) & wait $!
    portfolio-sdpo retrain --update
    echo "retrain ended with $? (0 promoted, 3 kept)." >&2
    portfolio-sdpo registry archive || echo "archive failed." >&2
    portfolio-sdpo registry backup "$backups/registry-$(date -u +%Y-%m-%d).backup" || echo "backup failed." >&2
    find "$backups" -name 'registry-*.backup' -mtime +"${BACKUPS_KEPT_DAYS:-30}" -delete
done
