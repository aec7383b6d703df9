"""Everything that is undamaged, out of a damaged log; docs/recovery.md has the rules.

In this order: `claims` says which file is which segment, `scanning` what can be read of each,
`holes` which LSNs are missing, `untrusted` which bodies are left of damaged frames (`carving`, of
those without a header), `live_jobs` which jobs that leaves, `judging` how sure that is; `salvaging`
joins them, `report` says it.  All of it only reads; what is to be written comes out as values, and
`replacing` puts a new log in the place of the old one.
"""
