module ldpstream/device // a path without a dot is never fetched, so nobody can publish another module under it

go 1.26
