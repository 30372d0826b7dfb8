/*
 * What the gateway is compared with: the least that a proxy on this Bun can do. It reads the request,
 * fetches, and passes the answer's body on. The address of the upstream is its argument.
 */
const upstream = process.argv[2];
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    const answer = await fetch(upstream + new URL(request.url).pathname, {
      method: request.method,
      headers: { "content-type": "application/json", authorization: "Bearer upstream-key" },
      body: await request.arrayBuffer(),
    });
    const contentType = answer.headers.get("content-type") ?? "";
    return new Response(answer.body, {
      status: answer.status,
      headers: { "content-type": contentType },
    });
  },
});
process.on("disconnect", () => process.exit(0));
process.send?.({ port: server.port });
