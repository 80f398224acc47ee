// express with rate-limiter-flexible over Redis: plain|options PORT REDIS-URL TIER…
// With "options", what its README offers against a flood and an outage: denials remembered in the process, and an insurance.
import express from 'express'
import { Redis } from 'ioredis'
import { RateLimiterMemory, RateLimiterRedis } from 'rate-limiter-flexible'
import { client, tiers } from './tiers.js'

const [mode, port, url, ...words] = process.argv.slice(2)
// As its documentation says: commands are not kept while there is no connection.
const redis = new Redis(url, { enableOfflineQueue: false })
redis.on('error', () => {})
await new Promise((ready) => redis.once('ready', ready))

const app = express()
for (const tier of tiers(words)) {
  const figures = { keyPrefix: tier.name, points: tier.limit, duration: tier.seconds }
  const options = mode === 'options'
    ? { inMemoryBlockOnConsumed: tier.limit, insuranceLimiter: new RateLimiterMemory(figures) }
    : {}
  const limiter = new RateLimiterRedis({ storeClient: redis, ...figures, ...options })
  app.use(tier.path ?? '/', (request, response, next) => {
    limiter.consume(client(request)).then(() => next()).catch((why) => {
      response.status(why instanceof Error ? 500 : 429).end()
    })
  })
}
app.use((request, response) => { response.send('ok') })
app.listen(Number(port), '127.0.0.1')
