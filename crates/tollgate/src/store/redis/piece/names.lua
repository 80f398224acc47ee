local call, UTOK = redis.call, 1000000
