import { describe, expect, test } from "bun:test";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentialDocument, credentialText } from "../../src/lib/credential-document.ts";
import { readConfig } from "../../src/platform/config.ts";

/** What Vertex AI and Azure are configured with. */

function providers(environment: Record<string, string>, entries: object[] = []) {
  const cwd = mkdtempSync(join(tmpdir(), "gateway-config-"));
  if (entries.length > 0) {
    writeFileSync(join(cwd, "gateway.config.json"), JSON.stringify({ providers: entries }));
  }
  return readConfig(environment, { cwd }).providers.filter(({ id }) => id !== "sandbox");
}

const ACCOUNT = {
  type: "service_account",
  project_id: "project-of-key",
  client_email: "a@b.test",
  private_key: "-----BEGIN PRIVATE KEY-----\nabc def\n-----END PRIVATE KEY-----\n",
};
const KEY = credentialText(ACCOUNT);
const address = (project: string, location = "global", host = "aiplatform.googleapis.com") =>
  `https://${host}/v1/projects/${project}/locations/${location}`;

function file(content: string): string {
  const path = join(mkdtempSync(join(tmpdir(), "gateway-credentials-")), "account.json");
  writeFileSync(path, content);
  return path;
}

test("credentials in JSON are a key like others, and are read again from it", () => {
  expect(KEY).toMatch(/^[\x21-\x7e]+$/);
  expect(credentialDocument(KEY)).toEqual(ACCOUNT);
  expect(credentialDocument(JSON.stringify(ACCOUNT, null, 2))).toEqual(ACCOUNT);
  for (const plain of ["AIzaKey", "sk-1", "eyJhbGciOi.eyJ.abc", "e30x!", "eyJ", "{", "[]", ""]) {
    expect(credentialDocument(plain)).toBeUndefined();
  }
});

describe("Vertex AI", () => {
  test.each([
    ["us-central1", "us-central1-aiplatform.googleapis.com"],
    ["europe-west4", "europe-west4-aiplatform.googleapis.com"],
    ["global", "aiplatform.googleapis.com"],
    ["us", "aiplatform.us.rep.googleapis.com"],
    ["eu", "aiplatform.eu.rep.googleapis.com"],
  ])("is enabled by its project, at the address of %s", (location, host) => {
    expect(providers({ VERTEX_PROJECT: "my-project", VERTEX_LOCATION: location })).toEqual([
      { id: "vertex", type: "vertex", baseUrl: address("my-project", location, host) },
    ]);
  });

  test("takes the service account that Google's tools take, which alone does not enable it", () => {
    const GOOGLE_APPLICATION_CREDENTIALS = file(JSON.stringify(ACCOUNT));
    expect(providers({ GOOGLE_APPLICATION_CREDENTIALS })).toEqual([]);
    const baseUrl = address("my-project");
    const expected = [{ id: "vertex", type: "vertex", apiKey: KEY, baseUrl }];
    expect(providers({ GOOGLE_APPLICATION_CREDENTIALS, VERTEX_PROJECT: "my-project" })).toEqual(
      expected,
    );
    const inline = { GOOGLE_APPLICATION_CREDENTIALS: JSON.stringify(ACCOUNT, null, 2) };
    expect(providers({ ...inline, VERTEX_PROJECT: "my-project" })).toEqual(expected);
  });

  test("as a key, the account's own project is called", () => {
    for (const VERTEX_API_KEY of [KEY, JSON.stringify(ACCOUNT)]) {
      expect(providers({ VERTEX_API_KEY })).toEqual([
        { id: "vertex", type: "vertex", apiKey: KEY, baseUrl: address("project-of-key") },
      ]);
    }
  });

  test("entries of the file have their own projects, locations and credentials", () => {
    const entries = [
      {
        id: "eu",
        type: "vertex",
        project: "one",
        location: "europe-west1",
        credentials_file: file(JSON.stringify(ACCOUNT)),
      },
      { id: "here", type: "vertex", base_url: "http://10.0.0.7/v1/projects/a/locations/b" },
      { id: "vertex", type: "vertex" },
    ];
    const environment = { VERTEX_PROJECT: "two", GCE_METADATA_HOST: "127.0.0.1:99" };
    const metadataHost = "127.0.0.1:99";
    expect(providers(environment, entries)).toEqual([
      {
        id: "eu",
        type: "vertex",
        apiKey: KEY,
        metadataHost,
        baseUrl: address("one", "europe-west1", "europe-west1-aiplatform.googleapis.com"),
      },
      {
        id: "here",
        type: "vertex",
        metadataHost,
        baseUrl: "http://10.0.0.7/v1/projects/a/locations/b",
      },
      { id: "vertex", type: "vertex", metadataHost, baseUrl: address("two") },
    ]);
  });

  const at = "gateway.config.json /providers/0";
  const entry = (more: object) => [{ id: "v", type: "vertex", ...more }];
  test.each([
    [{ VERTEX_PROJECT: "p/../q" }, [], 'VERTEX_PROJECT is "p/../q", but must be the id of'],
    [{ VERTEX_PROJECT: "pp", VERTEX_LOCATION: "a.evil.test" }, [], "VERTEX_LOCATION is"],
    [{ VERTEX_PROJECT: "pp", GCE_METADATA_HOST: "a/b" }, [], "GCE_METADATA_HOST is"],
    [{}, entry({}), `${at}/project is not set, but must be the id of a Google Cloud project`],
    [{}, entry({ project: "pp", base_url: "http://a" }), `${at} has both base_url and project`],
    [
      {},
      entry({ project: "pp", api_version: "1" }),
      `${at}/api_version applies only to providers of type azure`,
    ],
    [
      {},
      [{ id: "o", type: "openai", location: "us" }],
      `${at}/location applies only to providers of type vertex`,
    ],
    [
      { VERTEX_PROJECT: "pp", GOOGLE_APPLICATION_CREDENTIALS: "/nowhere/a.json" },
      [],
      "GOOGLE_APPLICATION_CREDENTIALS names a file that cannot be read (ENOENT)",
    ],
  ] as [Record<string, string>, object[], string][])("%j with %j is refused", (...of) => {
    const [environment, entries, message] = of;
    expect(() => providers(environment, entries)).toThrow(message);
  });

  test("a file that holds something else is refused without a word of it", () => {
    const credentials_file = file("hunter2 is no JSON");
    const read = () => providers({}, entry({ project: "pp", credentials_file }));
    expect(read).toThrow(`${at}/credentials_file names a file that is not a JSON object`);
    expect(read).not.toThrow("hunter2");
  });
});

describe("Azure", () => {
  const baseUrl = "https://me.openai.azure.com";

  test("has versions, deployments and keys", () => {
    const deployments = { "gpt-4o": "prod-4o" };
    const entry = { id: "azure", type: "azure", base_url: baseUrl, deployments };
    const environment = { AZURE_API_VERSION: "2024-10-21", AZURE_API_KEY: "k" };
    expect(providers(environment, [entry])).toEqual([
      { id: "azure", type: "azure", apiKey: "k", apiVersion: "2024-10-21", deployments, baseUrl },
    ]);
    const versioned = { ...entry, id: "other", api_version: "preview", api_key: "j" };
    expect(providers({}, [versioned]).at(0)).toEqual({
      id: "other",
      type: "azure",
      apiKey: "j",
      apiVersion: "preview",
      deployments,
      baseUrl,
    });
  });

  test("takes an application of Entra ID where there is no key, which alone does not enable it", () => {
    const application = {
      AZURE_TENANT_ID: "t",
      AZURE_CLIENT_ID: "c",
      AZURE_CLIENT_SECRET: "s",
      AZURE_AUTHORITY_HOST: "https://login.microsoftonline.us/",
    };
    expect(providers(application)).toEqual([]);
    const [azure] = providers({ ...application, AZURE_BASE_URL: baseUrl });
    expect(credentialDocument(azure!.apiKey!)).toEqual({
      tenant_id: "t",
      client_id: "c",
      client_secret: "s",
      authority: "https://login.microsoftonline.us",
    });
    const keyed = { ...application, AZURE_BASE_URL: baseUrl, AZURE_API_KEY: "k" };
    expect(providers(keyed)[0]!.apiKey).toBe("k");
  });

  test("a version that is none is refused", () => {
    const environment = { AZURE_BASE_URL: baseUrl, AZURE_API_VERSION: "a&b=c" };
    expect(() => providers(environment)).toThrow('AZURE_API_VERSION is "a&b=c", but must be');
  });
});
