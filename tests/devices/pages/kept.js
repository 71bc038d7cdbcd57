/** Returns all records of the page's databases: database -> key -> record. */
export async function kept() {
  const result = (request) => new Promise((resolve, reject) => Object.assign(request, { onsuccess: () => resolve(request.result), onerror: reject }));
  const found = {};
  for (const { name } of await indexedDB.databases()) {
    const database = await result(indexedDB.open(name));
    const records = database.transaction("records").objectStore("records");
    const [keys, values] = await Promise.all([result(records.getAllKeys()), result(records.getAll())]);
    found[name] = Object.fromEntries(keys.map((key, i) => [key, values[i]]));
    database.close();
  }
  return found;
}
