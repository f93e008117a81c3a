/**
 * Errors between a client and a server, besides those that the server returns (`RpcError`).
 *
 * ClientError
 * ├── ConnectionLost   the outcome is unknown: reset, too late, or a proxy's 502, 503, 504
 * ├── BadResponse      what came back is not the contract's: no JSON-RPC, too large, a redirect
 * └── Refused          this client will not send it: plain http beyond loopback
 */
export class ClientError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** It is unknown whether the server did the work; repeat the request with the same `call_id` to find out. */
export class ConnectionLost extends ClientError {}

/** The answer breaks the contract. */
export class BadResponse extends ClientError {}

/** The client's own rules forbid the request. */
export class Refused extends ClientError {}
