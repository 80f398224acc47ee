// express with express-rate-limit over Redis, as the store's own README sets it up: PORT REDIS-URL TIER…
import express from 'express'
import { rateLimit } from 'express-rate-limit'
import { RedisStore } from 'rate-limit-redis'
import { createClient } from 'redis'
import { client, tiers } from './tiers.js'

const [port, url, ...words] = process.argv.slice(2)
const redis = createClient({ url })
// Without a listener, a lost connection ends the process.
redis.on('error', () => {})
await redis.connect()

const app = express()
for (const tier of tiers(words)) {
  app.use(tier.path ?? '/', rateLimit({
    windowMs: tier.seconds * 1000,
    limit: tier.limit,
    standardHeaders: true,
    legacyHeaders: false,
    keyGenerator: client,
    store: new RedisStore({ prefix: `${tier.name}:`, sendCommand: (...args) => redis.sendCommand(args) }),
  }))
}
app.use((request, response) => { response.send('ok') })
// An error of the store is a 500 without its stack on the terminal.
app.use((error, request, response, next) => { response.status(500).end() })
app.listen(Number(port), '127.0.0.1')
