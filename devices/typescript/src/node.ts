/** The client with a store for Node. */

export { FileStore } from "./file_store.js";
export * from "./index.js";
