"""Effects of sinks outside of the platform, each at most once: who may do one, and what came of it. Knows no Dagster, no
Spark.

```python
store = EffectStore(EffectsTable(context.table("effects")), sink="invoices", domain=context.domain.name)
for key, answer in store.reserve_all({key: fingerprint(content) for key, content in batch.items()}).items():
    if isinstance(answer, Completed):
        continue                                  # done before, here or elsewhere; answer.result is what came of it
    if answer.attempt > 1:
        ...                                       # somebody may have done it and died: look there first
    results[key] = do_it(key, batch[key])
store.complete_all(results)
```

What is kept lies in the table `effects`, in every failure domain, and every step of it is one of the table's commits:
whoever is not allowed to commit any more cannot complete anything. See docs/decisions/0019-a-store-of-effects.md.
"""
