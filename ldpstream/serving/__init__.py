"""The whole service on one machine: `ldpstream serve`.

One process has the gateway, the log, the counting, the estimates, the page and the API. Its state is one data folder
(`stores.data_folder`).
"""
