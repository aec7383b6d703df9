"""The bytes of one segment, as columns: `wanted` says what is asked for, `decoding` gives batches
of the frames and records that `framing` finds, with bodies, tags and tubes (`payloads`); `durable`
says how far they may be read.
"""
