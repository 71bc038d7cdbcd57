module ldpdevice

go 1.23
