/** Names of versions that `/openai/v1` takes (https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle). */
const OF_V1: ReadonlySet<string> = new Set(["preview", "latest", "v1"]);

/** Where an Azure resource is called. Each address is one that `endpointUrl` adds a path to. */
export interface AzureAddress {
  /** Of the resource's list of models. */
  readonly root: string;
  /** Where each deployment has an address of its own; absent: it is named in the body, and called at `root`. */
  readonly ofDeployment?: (deployment: string) => string;
}

/**
 * The address of an Azure resource's models. With a dated version of the interface it names the deployment;
 * without, it is the one that has no versions, `/openai/v1`.
 *
 * @param baseUrl the resource (`https://name.openai.azure.com`), or a path there, which is then kept
 */
export function azureAddress(baseUrl: string, apiVersion: string | undefined): AzureAddress {
  const isBare = new URL(baseUrl).pathname === "/";
  const query = apiVersion === undefined ? "" : `?api-version=${encodeURIComponent(apiVersion)}`;
  if (apiVersion === undefined || OF_V1.has(apiVersion)) {
    return { root: `${isBare ? `${baseUrl}/openai/v1` : baseUrl}${query}` };
  }
  const root = isBare ? `${baseUrl}/openai` : baseUrl.replace(/\/openai\/v1$/, "/openai");
  return {
    root: `${root}${query}`,
    ofDeployment: (name) => `${root}/deployments/${encodeURIComponent(name)}${query}`,
  };
}
