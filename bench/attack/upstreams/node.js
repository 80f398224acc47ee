// An API on Node's http. Logs what it reads of each request, in every way in which applications on Node read it.
//
//   node node.js LOG
//
// Prints its port, and ends when its standard input does.
'use strict';

const fs = require('node:fs');
const http = require('node:http');

const log = fs.openSync(process.argv[2], 'a');

const unique = (values) => [...new Set(values.filter((value) => value !== undefined && value !== ''))];

// The values of a header, line by line as they came.
function lines(raw, name) {
  return raw.filter((_, i) => i % 2 === 1 && raw[i - 1].toLowerCase() === name);
}

// A header as its first line, as its last, and as Node joins them, with and without the spaces around it.
function header(request, name) {
  const all = lines(request.rawHeaders, name);
  const values = [all[0], all.at(-1), request.headers[name]];
  return unique([...values, ...values.map((value) => value?.trim())]);
}

// The token of an Authorization header, by applications that split it at white space and by those that match a pattern.
function bearer(value) {
  const [scheme, token] = value.trim().split(/\s+/);
  return [scheme.toLowerCase() === 'bearer' ? token : undefined, /^bearer\s+(.+?)\s*$/i.exec(value)?.[1]];
}

// The same, whatever the scheme is.
const credential = (value) => [value, value.split(' ')[1], value.trim().split(/\s+/)[1]];

// A host without its port: as Express, and as a URL.
function hostName(value) {
  const end = value.indexOf(':', value.startsWith('[') ? value.indexOf(']') + 1 : 0);
  const names = [end < 0 ? value : value.slice(0, end), value.split(':')[0]];
  try {
    names.push(new URL(`http://${value}/`).hostname);
  } catch {
    // A host that is no part of a URL.
  }
  return names.flatMap((name) => [name.toLowerCase(), name.toLowerCase().replace(/\.$/, '')]);
}

function decode(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    // Many routers decode what can be decoded.
    return path.replace(/%([0-9a-f]{2})/gi, (_, digits) => String.fromCharCode(parseInt(digits, 16)));
  }
}

const merge = (path) => path.replace(/\/{2,}/g, '/');

function resolve(path) {
  const segments = [];
  for (const segment of path.split('/').slice(1)) {
    if (segment === '..') segments.pop();
    else if (segment !== '.') segments.push(segment);
  }
  const open = /\/\.{0,2}$/.test(path) && segments.at(-1) !== '';
  return '/' + segments.join('/') + (open && segments.length > 0 ? '/' : '');
}

// As servlet containers do: what follows a semicolon is a parameter.
const withoutParameters = (path) => path.replace(/;[^/]*/g, '');

// The endpoints that routers may find under a target: a literal one, those that decode, merge slashes and resolve dots in any
// combination, and those that leave it to URL.
function routes(target) {
  const path = target.split('?')[0];
  const found = new Set([path]);
  for (const step of [withoutParameters, decode, merge, resolve, merge]) {
    for (const known of [...found]) found.add(step(known));
  }
  for (const base of ['http://api.test', undefined]) {
    try {
      const url = new URL(target, base);
      found.add(url.pathname).add(decode(url.pathname));
    } catch {
      // A target that is no part of a URL.
    }
  }
  return unique([...found].flatMap((known) => [known, known.length > 1 ? known.replace(/\/$/, '') : known]));
}

// The address that is not a proxy's: applications name loopback as trusted.
function caller(values) {
  const chain = values.join(',').split(/[ \t]*,[ \t]*/);
  const normal = (entry) => entry.replace(/^\[(.*)\](:\d+)?$/, '$1').replace(/^::ffff:/i, '').replace(/^(\d+\.\d+\.\d+\.\d+):\d+$/, '$1');
  const addresses = chain.map(normal);
  return [addresses.at(-1), addresses.findLast((address) => !address.startsWith('127.'))];
}

function record(request) {
  const said = (name) => header(request, name);
  const trailers = request.rawTrailers;
  return {
    method: request.method,
    target: request.url,
    methods: unique([request.method, request.method.toUpperCase(), ...said('x-http-method-override'), ...said('x-http-method'), ...said('x-method-override')]),
    routes: unique([...routes(request.url), ...said('x-original-url'), ...said('x-rewrite-url')]),
    hosts: unique([...said('host'), ...said('x-forwarded-host').flatMap((value) => value.split(',').map((host) => host.trim()))].flatMap(hostName)),
    keys: said('x-api-key'),
    bearers: unique(said('authorization').flatMap(bearer)),
    credentials: unique(said('authorization').flatMap(credential)),
    users: said('x-user-id'),
    // By applications that take a value as it is.
    tenants: unique([...lines(request.rawHeaders, 'x-tenant'), request.headers['x-tenant']]),
    plans: said('x-plan'),
    addresses: unique(caller(lines(request.rawHeaders, 'x-forwarded-for'))),
    real_addresses: unique([...said('x-real-ip'), ...said('forwarded')]),
    trailers: trailers.filter((_, i) => i % 2 === 0).map((name, i) => `${name.toLowerCase()}: ${trailers[2 * i + 1]}`),
    headers: request.rawHeaders.filter((_, i) => i % 2 === 0).map((name, i) => `${name}: ${request.rawHeaders[2 * i + 1]}`),
  };
}

// Long enough to fill the buffers of whoever does not read it.
const big = 'x'.repeat(1024 * 1024);

function answer(request, response) {
  request.on('error', () => {});
  request.resume();
  request.on('end', () => {
    fs.writeSync(log, JSON.stringify(record(request)) + '\n');
    response.end(request.url === '/big' ? big : 'ok\n');
  });
}

const server = http.createServer({ maxHeaderSize: 128 * 1024, keepAliveTimeout: 60_000 }, answer);
server.on('connect', (request, socket) => {
  fs.writeSync(log, JSON.stringify(record(request)) + '\n');
  socket.end('HTTP/1.1 200 OK\r\n\r\n');
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => console.log(server.address().port));
process.stdin.resume().on('end', () => process.exit(0));
