"""The section of docs/pipelines.md about schedules."""

from __future__ import annotations

SCHEDULES = """\
## Schedules

Without `schedule` a pipeline runs as soon as its source has something new. With one, nothing else starts it but a person or a program:

```yaml
schedule: {cron: "0 6 * * 1-5", time_zone: Europe/Berlin}   # or
schedule: {every_seconds: 900}                              # or
schedule: {after: [suppliers, regions]}
priority: 10
```

- In Dagster `cron` and `every_seconds` are the schedule `<name>_schedule`, and `after` the sensor `<name>_after`, with their ticks in the UI. Their
  runs materialize the assets of the pipeline and what is made of them, but not pipelines with a schedule of their own.
- A worker that is alive keeps the schedules: it asks for [runs](control-plane.md#runs) that it carries itself, and Dagster's ticks are skipped
  with that reason. Without a worker Dagster does. Each tick is taken once in the control store, no matter who asks
  ([decision 0068](decisions/0068-who-keeps-the-schedules.md)).
- `catch_up` is for ticks that were missed while neither ran: `latest` runs once for all of them, `all` once for each, one after another, for
  the newest `max_catch_up_runs`, and `none` waits for the next tick. A tick counts as missed after 60 seconds. A schedule begins when it is
  seen first: earlier ticks were not missed.
- A local time that the change to summer time leaves out is a tick at the moment of the change. Of one that the change back repeats, the
  first is a tick; Dagster evaluates it at the second.
- The ticks of `after` are commits: each pipeline that it names has taken something up into its table since the last run, and none of them has a run under
  way. Maintenance of tables is no tick.
- While a pipeline is paused, the worker's ticks are remembered as one run that begins with `resume`. Dagster's ticks are skipped with the state
  as the reason; the first one after `resume` follows `catch_up`. A tick of a canceled pipeline that the worker asks for is a new run.
- `priority` orders runs in Dagster's queue (`dagster/priority`) and the worker's turns; it interrupts nothing.
- `etl-assets pipelines schedules` shows the next and the last tick of each, and what became of it.
"""
