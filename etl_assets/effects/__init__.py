"""Effects of sinks outside of the platform, each at most once: who may do one, and its result.

Knows no Dagster and no Spark.

```python
store = EffectStore(EffectsTable(context.table("effects")), sink="invoices", domain=context.domain.name)
for key, answer in store.reserve_all({key: fingerprint(content) for key, content in batch.items()}).items():
    if isinstance(answer, Completed):
        continue                                  # done before, here or elsewhere; answer.result is known
    if answer.attempt > 1:
        ...                                       # a process may have done it and died: look there first
    results[key] = do_it(key, batch[key])
store.complete_all(results)
```

The state is in the table `effects`, in every failure domain, and each transition is a commit of that table. A
process that may no longer commit cannot complete anything. See docs/decisions/0019-a-store-of-effects.md.
"""
