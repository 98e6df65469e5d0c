"""The audit of the everyday promise, from recorded laws and encoders alone: own filter, own checks.

A law is what a client was ready to draw from at one OFF step, as it recorded it (`onoff.audit.everyday.record`). It
holds no secret. What the server believes follows by Bayes from laws and queries, over hidden pasts that are never
merged (`pasts`); every law is checked against them (`checks`); a whole transcript is attacked going forward and back
(`beliefs`). Nothing here knows how laws are made.
"""
