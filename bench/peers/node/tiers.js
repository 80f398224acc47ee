// What is allowed, in the words of the command line: name:limit:seconds[:path].
export const tiers = (words) => words.map((word) => {
  const [name, limit, seconds, path] = word.split(':')
  return { name, limit: Number(limit), seconds: Number(seconds), path }
})

export const client = (request) => request.get('x-client-id') ?? 'nobody'
