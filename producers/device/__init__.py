"""One person's client, which an application embeds: memo file, random numbers, reports, and a wallet for several surveys."""
