import { expect, test } from "bun:test";
import { readOutboundProxies } from "../../src/platform/config/outbound-proxies.ts";
import { readConfig } from "../../src/platform/config.ts";

const PROXY = { hostname: "proxy.test", port: 3128, authorization: undefined };

test.each([
  ["http_proxy", PROXY, undefined],
  ["HTTP_PROXY", PROXY, undefined],
  ["https_proxy", undefined, PROXY],
  ["HTTPS_PROXY", undefined, PROXY],
  ["all_proxy", PROXY, PROXY],
  ["ALL_PROXY", PROXY, PROXY],
])("the proxy that %s names is in use", (name, http, https) => {
  const { proxies } = readConfig({ [name]: "http://proxy.test:3128" });
  expect(proxies).toEqual({ http, https, exempt: [] });
  expect(readConfig({ [name]: "" }).proxies.http).toBeUndefined();
});

test("lower case comes before upper case, and a protocol's own proxy before that for all", () => {
  const { http, https } = readOutboundProxies({
    http_proxy: "http://a.test",
    HTTP_PROXY: "http://b.test",
    ALL_PROXY: "http://c.test",
  });
  expect([http?.hostname, https?.hostname]).toEqual(["a.test", "c.test"]);
});

test.each([
  ["proxy.test:3128", PROXY],
  ["http://proxy.test/", { ...PROXY, port: 80 }],
  ["http://[::1]:3128", { ...PROXY, hostname: "::1" }],
  ["http://user:p%40ss@proxy.test:3128", { ...PROXY, authorization: "Basic dXNlcjpwQHNz" }],
  ["http://user@proxy.test:3128", { ...PROXY, authorization: "Basic dXNlcjo=" }],
])("the proxy %s is understood", (text, proxy) => {
  expect(readOutboundProxies({ HTTPS_PROXY: text }).https).toEqual(proxy);
});

test.each([
  "https://user:s3cret@proxy.test",
  "socks5://user:s3cret@proxy.test",
  "http://user:s3cret%zz@proxy.test",
  "http://user:s3cret@",
  "http://user:s3cret@proxy.test:99999",
])("the proxy %s stops the start, and its credentials are not shown", (text) => {
  const read = () => readConfig({ HTTPS_PROXY: text });
  expect(read).toThrow("HTTPS_PROXY is");
  expect(read).toThrow("but must be an http:// URL of a proxy");
  expect(read).not.toThrow("s3cret");
});

test("the entries of NO_PROXY are separated by commas and spaces", () => {
  const { exempt } = readOutboundProxies({ NO_PROXY: " Localhost,.corp.test , 10.0.0.0/8,," });
  expect(exempt).toEqual(["localhost", ".corp.test", "10.0.0.0/8"]);
});
