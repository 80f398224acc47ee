-- The level of a full token bucket, `most`, of a limit `x`, `y`, `z`: a lowered limit denies until one token has drained, not until the old burst has.
most = (y - 1) * x / y
most = z * UTOK + most - most % 1
