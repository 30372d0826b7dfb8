/**
 * API versions that `/openai/v1` accepts
 * (https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle).
 */
const V1_VERSIONS: ReadonlySet<string> = new Set(["preview", "latest", "v1"]);

/** URLs of an Azure resource. `endpointUrl` adds a path to each of them. */
export interface AzureAddress {
  /** Base URL of the resource's list of models. */
  readonly root: string;
  /**
   * Returns the base URL of a deployment. Absent if requests go to `root` and name the deployment in the
   * body.
   */
  readonly ofDeployment?: (deployment: string) => string;
}

/**
 * Returns the URLs of an Azure resource. With a dated API version the URL names the deployment. Without one
 * it is the unversioned `/openai/v1`.
 *
 * @param baseUrl the resource (`https://name.openai.azure.com`), or a path on it, which is then used as it is
 */
export function azureAddress(baseUrl: string, apiVersion: string | undefined): AzureAddress {
  const isBare = new URL(baseUrl).pathname === "/";
  const query = apiVersion === undefined ? "" : `?api-version=${encodeURIComponent(apiVersion)}`;
  if (apiVersion === undefined || V1_VERSIONS.has(apiVersion)) {
    return { root: `${isBare ? `${baseUrl}/openai/v1` : baseUrl}${query}` };
  }
  const root = isBare ? `${baseUrl}/openai` : baseUrl.replace(/\/openai\/v1$/, "/openai");
  return {
    root: `${root}${query}`,
    ofDeployment: (name) => `${root}/deployments/${encodeURIComponent(name)}${query}`,
  };
}
