// A peer of js-libp2p that connects to a node of gradvine, once, and prints what it finds as JSON.
//
// node peer.mjs ADDRESS/p2p/PEERID noise|tls KEY_FILE|- [PROTOCOL ...]
//
// Without a key file it is a stranger. It opens a stream for each protocol and sends bytes that no
// protocol has.
import { readFileSync } from 'node:fs'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { generateKeyPair, privateKeyFromProtobuf } from '@libp2p/crypto/keys'
import { identify } from '@libp2p/identify'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { tls } from '@libp2p/tls'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

// Node.js 20 lacks it.
Promise.withResolvers ??= function () {
  const all = {}
  all.promise = new this((resolve, reject) => Object.assign(all, { resolve, reject }))
  return all
}

const [address, encryption, keyFile, ...protocols] = process.argv.slice(2)
const found = { connected: false, streams: {} }
const within = ms => ({ signal: AbortSignal.timeout(ms) })
const attempt = async work => {
  try { return await work() } catch (error) { return { error: String(error.message ?? error) } }
}

const node = await createLibp2p({
  privateKey: keyFile === '-'
    ? await generateKeyPair('Ed25519')
    : privateKeyFromProtobuf(readFileSync(keyFile)),
  transports: [tcp()],
  connectionEncrypters: [encryption === 'tls' ? tls() : noise()],
  streamMuxers: [yamux()],
  services: { identify: identify({ runOnConnectionOpen: false }), ping: ping() }
})

try {
  const dial = () => node.dial(multiaddr(address), { ...within(20_000), force: true })
  let connection = await dial()
  found.connected = true
  found.encryption = connection.encryption
  found.identify = await attempt(async () => {
    const { protocols, agentVersion, listenAddrs } =
      await node.services.identify.identify(connection, within(10_000))
    return { protocols, agentVersion, listenAddrs: listenAddrs.map(String) }
  })
  found.ping = await attempt(() => node.services.ping.ping(connection.remotePeer, within(10_000)))
  for (const protocol of protocols) {
    found.streams[protocol] = await attempt(async () => {
      // The node closes a connection whose handshake is wrong: each stream has its own.
      connection.abort(new Error('the next one'))
      connection = await dial()
      const stream = await connection.newStream(protocol, within(10_000))
      let received = 0
      const closed = new Promise(resolve => {
        stream.addEventListener('message', event => { received += event.data.byteLength })
        stream.addEventListener('close', event => resolve(event.error ? 'reset' : 'closed'))
        setTimeout(() => resolve('open'), 10_000).unref()
      })
      // A length of 4 GiB, then noise.
      stream.send(new Uint8Array(4096).fill(0xff))
      return { received, end: await closed }
    })
  }
} catch (error) {
  found.error = String(error.message ?? error)
}
console.log(JSON.stringify(found))
await Promise.race([node.stop(), new Promise(resolve => setTimeout(resolve, 2_000))])
process.exit(0)
