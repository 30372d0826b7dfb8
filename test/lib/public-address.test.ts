import { describe, expect, test } from "bun:test";
import { AddressPolicy } from "../../src/lib/public-address.ts";

/**
 * IANA's registries of special-purpose addresses (IPv4 and IPv6), first and last address of each entry,
 * then what clouds keep for their own platforms.
 */
const NOT_PUBLIC: Readonly<Record<string, readonly string[]>> = {
  "this network": ["0.0.0.0", "0.255.255.255"],
  "private use": ["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0"],
  "shared address space": ["100.64.0.0", "100.127.255.255", "100.100.100.200"],
  loopback: ["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1"],
  "link local": ["169.254.0.0", "169.254.169.254", "169.254.255.255", "fe80::", "febf::ffff"],
  "IETF protocol assignments": ["192.0.0.0", "192.0.0.170", "192.0.0.192", "192.0.0.255"],
  documentation: [
    ...["192.0.2.0", "192.0.2.255", "198.51.100.1", "203.0.113.255"],
    ...["2001:db8::", "2001:db8:ffff:ffff::1", "3fff::", "3fff:fff:ffff::1"],
  ],
  AS112: ["192.31.196.0", "192.175.48.255", "2620:4f:8000::", "2620:4f:8000:ffff::1"],
  AMT: ["192.52.193.0", "192.52.193.255", "2001:3::1"],
  "6to4 relay anycast": ["192.88.99.0", "192.88.99.255"],
  benchmarking: ["198.18.0.0", "198.19.255.255", "2001:2::1"],
  multicast: ["224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ffff::"],
  reserved: ["240.0.0.0", "255.255.255.254", "255.255.255.255"],
  unspecified: ["::"],
  "IPv4 mapped": [
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:168.63.129.16",
    "::ffff:a9fe:a9fe",
  ],
  "IPv4 compatible": ["::7f00:1", "::8.8.8.8"],
  "IPv4 translated": ["::ffff:0:808:808", "::ffff:0:7f00:1"],
  NAT64: ["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::", "64:ff9b:1:ffff::808:808"],
  "discard only": ["100::", "100::ffff", "100:0:0:1::"],
  "IETF protocol assignments of IPv6": ["2001::", "2001:1::1", "2001:1ff:ffff::1"],
  Teredo: ["2001:0:7f00:1::", "2001:0:808:808::"],
  ORCHID: ["2001:10::", "2001:1f:ffff::", "2001:20::", "2001:2f:ffff::"],
  "drone remote ids": ["2001:30::", "2001:3f:ffff::"],
  "6to4": ["2002::", "2002:7f00:1::", "2002:a00:1::", "2002:808:808::1"],
  "segment routing": ["5f00::", "5f00:ffff::1"],
  "unique local": ["fc00::", "fd00:ec2::254", "fd20:ce::254", "fdff:ffff::1"],
  "site local": ["fec0::", "feff:ffff::1"],
  "handed out to nobody": ["4000::1", "8000::1", "e000::1", "1::1"],
  "Azure's platform": ["168.63.129.16"],
  "Google's private access": ["199.36.153.4", "199.36.153.7", "199.36.153.8", "199.36.153.11"],
  "IBM's service endpoints": ["161.26.0.0", "161.26.0.10", "166.8.0.0", "166.11.255.255"],
  "no address at all": ["", "example.com", "fe80::1%eth0", "2606:4700::1%1", "1.2.3.4/8"],
};

const PUBLIC = [
  ...["1.1.1.1", "8.8.8.8", "93.184.215.14", "100.63.255.255", "100.128.0.0", "126.255.255.255"],
  ...["168.63.129.15", "168.63.129.17", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.0.1"],
  ...[
    "198.17.255.255",
    "198.20.0.0",
    "199.36.153.12",
    "161.27.0.0",
    "166.12.0.0",
    "223.255.255.255",
  ],
  ...["2606:4700:4700::1111", "2001:4860:4860::8888", "2001:200::1", "2620:4f:8001::1", "2a00::1"],
  "::ffff:8.8.8.8",
];

describe("an address is refused where it belongs to", () => {
  const policy = new AddressPolicy();
  for (const [name, addresses] of Object.entries(NOT_PUBLIC)) {
    test(name, () => {
      expect(addresses.filter((address) => policy.allows(address))).toEqual([]);
    });
  }
});

test("public addresses are allowed, also those next to refused ones", () => {
  const policy = new AddressPolicy();
  expect(PUBLIC.filter((address) => !policy.allows(address))).toEqual([]);
});

test("an operator may allow an address of a platform, and opens nothing else by it", () => {
  const policy = new AddressPolicy(["168.63.129.16/32"]);
  expect(policy.allows("168.63.129.16")).toBeTrue();
  expect(policy.allows("169.254.169.254")).toBeFalse();
});
