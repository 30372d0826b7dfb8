import { describe, expect, test } from "bun:test";
import { pathOfModel, RequestSigner } from "../../src/providers/bedrock/request-signer.ts";

const ID = "AKIAIOSFODNN7EXAMPLE";
const SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const TOKEN = "FwoGZXIvYXdzEXAMPLETOKEN//////////wEaD==";
const HOST = "https://bedrock-runtime.us-east-1.amazonaws.com";
const BODY = '{"messages":[{"role":"user","content":[{"text":"héllo ✓"}]}]}';
const clock = { nowMs: () => Date.UTC(2026, 10, 23, 6, 30) } as never;

const signer = (apiKey: string | undefined, baseUrl = HOST, region?: string) =>
  new RequestSigner({ providerId: "bedrock", apiKey, baseUrl, region, clock });

const ARN = "arn:aws:bedrock:us-east-1:123456789012";

/**
 * What botocore 1.44.5 signs (`SigV4Auth` of `botocore.auth`, service bedrock, region us-east-1, at that time, the
 * same body, no headers of the caller's), without and with the session's token.
 */
const SIGNED_BY_BOTOCORE: readonly (readonly [string, string, string])[] = [
  [
    "us.amazon.nova-micro-v1:0",
    "52db7d6108dac26a3f27ce5cdecc67219175df09c72fda7b9c3f79d33ceda7d1",
    "ae6990719fd7a30526643e5380e1d9e6e8a75270ff834f65fd56b88c42524718",
  ],
  [
    "anthropic.claude-3-haiku-20240307-v1:0",
    "2c301d393fc7915e28668b1bb6176597f73d88779b11f7c38e75e1637f0cb691",
    "e330f1b046e735f4c2d42bda77716cfc1db603e70ad594f3eb2001c2e97f1b80",
  ],
  [
    `${ARN}:application-inference-profile/a1b2c3d4e5f6`,
    "5a703750ed387d9fa6b04b878cfd657ee2beb346eb8b96fe2016a1e8fc0600bc",
    "79d0184999a860acbbdb851a77a84d315870531f037d28938d30708566cdb8c2",
  ],
  [
    `${ARN}:inference-profile/us.anthropic.claude-opus-5`,
    "63730a13f3ef6e939b0ba04a0451fd6ee21c4b9b977492974a43a8c1313e68bf",
    "f669d75f4dcae6f23355aff03884bed7bce307f029f6ec36dcea4d2f1f00c4ca",
  ],
  [
    "odd name!*'()~",
    "7ab56f4dfce4d9dff61ade9b302f4c1a3eccf011ebb33f87249ccadd49754c4c",
    "28f3ba647d856db7cc12106940f5924c119e443f1519a1dc44b13cf5eb6c1071",
  ],
];

test.each(SIGNED_BY_BOTOCORE)(
  "%s is signed as AWS's own library signs it",
  async (model, ...signed) => {
    const url = `${HOST}${pathOfModel(model)}/converse`;
    const keys = [`${ID}:${SECRET}`, `${ID}:${SECRET}:${TOKEN}`];
    for (const [at, key] of keys.entries()) {
      for (const body of [BODY, new TextEncoder().encode(BODY)]) {
        const headers = await signer(key).headersFor(url, body);
        expect(headers.authorization).toEndWith(`Signature=${signed[at]}`);
        expect(headers["x-amz-date"]).toBe("20261123T063000Z");
        expect(headers["x-amz-security-token"]).toBe(at === 0 ? undefined : TOKEN);
        expect(JSON.stringify(headers)).not.toContain(SECRET);
      }
    }
  },
);

test("colons and slashes of a model's name are encoded once", () => {
  expect(pathOfModel(`${ARN}:inference-profile/us.x-v1:0`)).toBe(
    "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.x-v1%3A0",
  );
});

test("an API key of Bedrock goes as a bearer token, and needs no region", async () => {
  const key = "ABSKQmVkcm9ja0FQSUtleS1leGFtcGxlOmtleQ==";
  const headers = await signer(key, "https://proxy.test").headersFor("https://proxy.test/x", BODY);
  expect(headers).toEqual({
    "content-type": "application/json",
    "accept-encoding": "identity",
    authorization: `Bearer ${key}`,
  });
});

describe("the region", () => {
  const scopeOf = async (baseUrl: string, region?: string) => {
    const headers = await signer(`${ID}:${SECRET}`, baseUrl, region).headersFor(`${baseUrl}/x`, "");
    return headers.authorization!.split("/")[2];
  };

  test.each([
    ["https://bedrock-runtime.eu-west-1.amazonaws.com", "us-east-1", "eu-west-1"],
    ["https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com", undefined, "us-gov-west-1"],
    ["https://vpce-0a1.bedrock-runtime.ap-south-1.vpce.amazonaws.com", undefined, "ap-south-1"],
    ["https://bedrock-runtime.cn-north-1.amazonaws.com.cn", undefined, "cn-north-1"],
    ["https://proxy.test/bedrock", "us-west-2", "us-west-2"],
  ])("of %s is that of the host, or else the stated one", async (baseUrl, region, expected) => {
    expect(await scopeOf(baseUrl, region)).toBe(expected);
  });

  test("is demanded where nothing tells it, in words without the key", () => {
    expect(() => signer(`${ID}:${SECRET}`, "https://proxy.test")).toThrow(
      'the region of provider "bedrock" is unknown, and signatures need it',
    );
  });
});

test("a key that no header can carry is refused in words without it", () => {
  for (const key of [`${ID}:${SECRET}\r\nx: y`, "key with spaces"]) {
    let message = "";
    try {
      signer(key);
    } catch (error) {
      message = (error as Error).message;
    }
    expect(message).toBe('the key of provider "bedrock" has characters that no header can carry');
  }
});
