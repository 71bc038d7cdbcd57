// swift-tools-version:5.9
import PackageDescription

#if os(Linux)
    let core = Target.systemLibrary(name: "LdpstreamDeviceFFI", path: "headers")
#else
    let core = Target.binaryTarget(name: "LdpstreamDeviceFFI", path: "LdpstreamDeviceFFI.xcframework")
#endif

let package = Package(
    name: "LdpstreamDevice",
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [.library(name: "LdpstreamDevice", targets: ["LdpstreamDevice"])],
    targets: [
        .target(
            name: "LdpstreamDevice", dependencies: ["LdpstreamDeviceFFI"],
            linkerSettings: [.linkedLibrary("ldpstream_uniffi", .when(platforms: [.linux]))]
        ),
        .executableTarget(name: "Count", dependencies: ["LdpstreamDevice"], path: "example/Count"),
        .executableTarget(name: "Life", dependencies: ["LdpstreamDevice"], path: "example/Life"),
        core,
    ]
)
